// SPDX-License-Identifier: BSD-2-Clause
/*
 * json_line.c: where in a JSON text a value stands. The text was accepted by a real parser, so this
 * scanner only needs to know strings and brackets; it still never leaves the text.
 */
#include "target/json_line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct scan {
	const char *p, *end;
	int line;
};

void json_path_print(const struct json_path *path, char *text, size_t len)
{
	size_t used = 0;

	if (!len)
		return;
	text[0] = 0;
	for (unsigned int i = 0; i < path->depth && used < len - 1; i++) {
		const struct json_step *step = &path->step[i];
		int n = step->key
				? snprintf(text + used, len - used, "%s%s", i ? "." : "", step->key)
				: snprintf(text + used, len - used, "[%zu]", step->index);

		if (n < 0)
			return;
		used += (size_t)n;
	}
}

static void skip_space(struct scan *s)
{
	for (; s->p < s->end && strchr(" \t\r\n", *s->p) && *s->p; s->p++)
		if (*s->p == '\n')
			s->line++;
}

/* at the opening quote; leaves @s behind the closing one */
static void skip_string(struct scan *s)
{
	for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
		if (*s->p == '\\' && s->p + 1 < s->end)
			s->p++;
	if (s->p < s->end)
		s->p++;
}

/* leaves @s behind the value that begins at it */
static void skip_value(struct scan *s)
{
	size_t depth = 0;

	for (; s->p < s->end;) {
		skip_space(s);
		if (s->p == s->end)
			return;
		switch (*s->p) {
		case '"':
			skip_string(s);
			break;
		case '{':
		case '[':
			depth++;
			s->p++;
			break;
		case '}':
		case ']':
			if (!depth)
				return; /* the container's end: an empty value */
			depth--;
			s->p++;
			break;
		case ',':
		case ':':
			if (!depth)
				return;
			s->p++;
			continue;
		default:
			/* at least one: a NUL, which strchr() finds in any set, must not stop us */
			for (s->p++; s->p < s->end && !strchr(",:]} \t\r\n\"[{", *s->p);)
				s->p++;
		}
		if (!depth)
			return;
	}
}

/* at the value of an object: goes to the value of @key; false when it has no such key */
static bool enter_member(struct scan *s, const char *key, int *line)
{
	size_t key_len = strlen(key);

	if (s->p == s->end || *s->p != '{')
		return false;
	for (s->p++;;) {
		const char *name;
		bool same;

		skip_space(s);
		if (s->p == s->end || *s->p != '"')
			return false;
		name = s->p + 1;
		skip_string(s);
		same = (size_t)(s->p - name) == key_len + 1 && !memcmp(name, key, key_len);
		if (same)
			*line = s->line;
		skip_space(s);
		if (s->p == s->end || *s->p != ':')
			return false;
		s->p++;
		skip_space(s);
		if (same)
			return true;
		skip_value(s);
		skip_space(s);
		if (s->p == s->end || *s->p != ',')
			return false;
		s->p++;
	}
}

static bool enter_element(struct scan *s, size_t index, int *line)
{
	if (s->p == s->end || *s->p != '[')
		return false;
	s->p++;
	for (size_t i = 0;; i++) {
		skip_space(s);
		if (s->p == s->end || *s->p == ']')
			return false;
		if (i == index) {
			*line = s->line;
			return true;
		}
		skip_value(s);
		skip_space(s);
		if (s->p == s->end || *s->p != ',')
			return false;
		s->p++;
	}
}

int json_path_line(const struct json_path *path, const char *text, size_t len)
{
	struct scan s = { .p = text, .end = text + len, .line = 1 };
	int line;

	skip_space(&s);
	line = s.line;
	for (unsigned int i = 0; i < path->depth; i++) {
		const struct json_step *step = &path->step[i];

		if (step->key ? !enter_member(&s, step->key, &line)
			      : !enter_element(&s, step->index, &line))
			break;
	}
	return line;
}
