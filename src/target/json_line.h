/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * json_line.h: where in a JSON text a value stands. jansson forgets lines once it has parsed; an
 * error message needs them.
 */
#ifndef SOFTHCA_TARGET_JSON_LINE_H
#define SOFTHCA_TARGET_JSON_LINE_H

#include <stddef.h>

#define JSON_PATH_MAX 12

/* from the root: members by key, array elements by index (key NULL) */
struct json_path {
	struct json_step {
		const char *key;
		size_t index;
	} step[JSON_PATH_MAX];
	unsigned int depth;
};

/* "subsystems[0].attr.serial" */
void json_path_print(const struct json_path *path, char *text, size_t len);
/**
 * json_path_line() - line, from 1, of the key (or array element) that @path names in @text, a text
 * that jansson has accepted. When a step cannot be found (a key written with escapes): the line of
 * the last step that was found.
 */
int json_path_line(const struct json_path *path, const char *text, size_t len);

#endif
