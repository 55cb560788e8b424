/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list.h: an intrusive, circular, doubly linked list.
 */
#ifndef SOFTHCA_UTIL_LIST_H
#define SOFTHCA_UTIL_LIST_H

#include <stdbool.h>
#include <stddef.h>

#ifndef container_of
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#endif

struct list_node {
	struct list_node *next, *prev;
};

static inline void list_init(struct list_node *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list_node *head)
{
	return head->next == head;
}

static inline void list_insert_between(struct list_node *node, struct list_node *prev,
				       struct list_node *next)
{
	node->prev = prev;
	node->next = next;
	prev->next = node;
	next->prev = node;
}

static inline void list_add(struct list_node *head, struct list_node *node)
{
	list_insert_between(node, head, head->next);
}

static inline void list_add_tail(struct list_node *head, struct list_node *node)
{
	list_insert_between(node, head->prev, head);
}

/* leaves @node as a list of its own, so that deleting it again does no harm */
static inline void list_del(struct list_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	list_init(node);
}

static inline struct list_node *list_pop(struct list_node *head)
{
	struct list_node *node = head->next;

	if (node == head)
		return NULL;
	list_del(node);
	return node;
}

/* move everything from @from to the end of @to */
static inline void list_splice_tail(struct list_node *to, struct list_node *from)
{
	if (list_empty(from))
		return;
	from->next->prev = to->prev;
	to->prev->next = from->next;
	from->prev->next = to;
	to->prev = from->prev;
	list_init(from);
}

#define list_entry(node, type, member) container_of(node, type, member)

#define list_for_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)

#define list_for_each_safe(pos, tmp, head)                                                         \
	for (pos = (head)->next, tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

#endif
