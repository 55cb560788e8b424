/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * event_fd.h: the descriptors that applications wait on: an eventfd that counts like a semaphore,
 * one count an event. Works with poll, epoll (also edge-triggered: each post is an edge) and
 * io_uring; whether a wait blocks is the application's O_NONBLOCK.
 */
#ifndef SOFTHCA_VERBS_EVENT_FD_H
#define SOFTHCA_VERBS_EVENT_FD_H

/* Return: a descriptor, or -1 and errno */
int event_fd_create(void);
void event_fd_post(int fd);
/* take one count, waiting for it if the descriptor is blocking. Return: 0, EAGAIN, EINTR, ... */
int event_fd_wait(int fd);
/* @count events that were posted are void: take back what nobody has taken yet. Never blocks */
void event_fd_take_back(int fd, unsigned int count);

#endif
