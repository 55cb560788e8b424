// SPDX-License-Identifier: BSD-2-Clause
/*
 * soft_ctrl.c: the soft controller: its objects, namespaces, doorbells and threads. What a queue
 * pair does with a command is in soft_qp.c.
 *
 * Locks: ctrl->control serializes the control calls. Each queue pair has its own lock, taken by
 * whoever serves it; the namespace table and the allowed ranges change only with the locks of all
 * queue pairs held, so that serving reads them under its one lock.
 */
#include "nvme/soft_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"

#define DOORBELL_BYTES 8  /* SQ tail and CQ head of one queue */
#define WAIT_MS	       1  /* re-check interval while a control call waits for I/O */
#define DRAIN_POLLS    64 /* empty polls after which a left-over eventfd count is taken away */

struct soft_ctrl *soft_ctrl_create(unsigned int max_queues)
{
	struct soft_ctrl *ctrl;
	long page = sysconf(_SC_PAGESIZE);

	if (!max_queues || max_queues > SOFT_MAX_QUEUES) {
		errno = EINVAL;
		return NULL;
	}
	ctrl = calloc(1, sizeof(*ctrl));
	if (!ctrl)
		return NULL;
	ctrl->max_queues = max_queues;
	ctrl->event_fd = -1;
	ctrl->qps = calloc(max_queues + 1, sizeof(*ctrl->qps));
	ctrl->doorbells_len = ((max_queues + 1) * DOORBELL_BYTES + page - 1) / page * page;
	ctrl->doorbells = mmap(NULL, ctrl->doorbells_len, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ctrl->doorbells == MAP_FAILED)
		ctrl->doorbells = NULL;
	ctrl->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!ctrl->qps || !ctrl->doorbells || ctrl->event_fd < 0) {
		int err = ctrl->event_fd < 0 ? errno : ENOMEM;

		if (ctrl->doorbells)
			munmap(ctrl->doorbells, ctrl->doorbells_len);
		if (ctrl->event_fd >= 0)
			close(ctrl->event_fd);
		free(ctrl->qps);
		free(ctrl);
		errno = err;
		return NULL;
	}
	pthread_mutex_init(&ctrl->control, NULL);
	for (unsigned int i = 0; i <= max_queues; i++)
		soft_qp_init(&ctrl->qps[i], ctrl, (uint16_t)i);
	return ctrl;
}

static void lock_all(struct soft_ctrl *ctrl)
{
	for (unsigned int i = 1; i <= ctrl->max_queues; i++)
		pthread_mutex_lock(&ctrl->qps[i].lock);
}

static void unlock_all(struct soft_ctrl *ctrl)
{
	for (unsigned int i = ctrl->max_queues; i >= 1; i--)
		pthread_mutex_unlock(&ctrl->qps[i].lock);
}

/* let I/O go on while a control call waits for it, whoever else polls */
static void wait_for_io(struct soft_ctrl *ctrl)
{
	struct pollfd fd = { .fd = ctrl->event_fd, .events = POLLIN };

	if (!soft_ctrl_poll(ctrl))
		poll(&fd, 1, WAIT_MS);
}

void soft_ctrl_destroy(struct soft_ctrl *ctrl)
{
	uint64_t one = 1;

	if (!ctrl)
		return;
	for (unsigned int i = 1; i <= ctrl->max_queues; i++)
		soft_ctrl_delete_qp(&ctrl->qps[i]);
	if (ctrl->has_thread) {
		atomic_store(&ctrl->stop, true);
		if (write(ctrl->event_fd, &one, sizeof(one)) < 0)
			log_debug("nvme: cannot wake the controller's thread: %s", strerror(errno));
		pthread_join(ctrl->thread, NULL);
	}
	for (uint32_t i = 0; i <= SOFT_MAX_NSID; i++) {
		if (ctrl->namespaces[i])
			atomic_fetch_sub(&ctrl->namespaces[i]->backend->references, 1);
		free(ctrl->namespaces[i]);
	}
	for (unsigned int i = 0; i <= ctrl->max_queues; i++)
		pthread_mutex_destroy(&ctrl->qps[i].lock);
	pthread_mutex_destroy(&ctrl->control);
	munmap(ctrl->doorbells, ctrl->doorbells_len);
	close(ctrl->event_fd);
	free(ctrl->ranges);
	free(ctrl->qps);
	free(ctrl);
}

int soft_ctrl_add_namespace(struct soft_ctrl *ctrl, uint32_t nsid, struct backend *backend)
{
	struct soft_ns *ns;
	int ret = 0;

	if (!nsid || nsid > SOFT_MAX_NSID || !backend)
		return -EINVAL;
	ns = calloc(1, sizeof(*ns));
	if (!ns)
		return -ENOMEM;
	ns->backend = backend;
	ns->lba_size = backend->info.lba_size;
	ns->lba_count = backend->info.size_bytes / backend->info.lba_size;
	pthread_mutex_lock(&ctrl->control);
	lock_all(ctrl);
	if (ctrl->namespaces[nsid]) {
		ret = -EEXIST;
	} else {
		if (!backend->at_once) {
			ctrl->wants_rings = true;
			for (unsigned int i = 1; i <= ctrl->max_queues; i++)
				soft_qp_need_ring(&ctrl->qps[i]);
		}
		ctrl->namespaces[nsid] = ns;
		atomic_fetch_add(&backend->references, 1);
	}
	unlock_all(ctrl);
	pthread_mutex_unlock(&ctrl->control);
	if (ret)
		free(ns);
	return ret;
}

int soft_ctrl_remove_namespace(struct soft_ctrl *ctrl, uint32_t nsid)
{
	struct soft_ns *ns;

	if (!nsid || nsid > SOFT_MAX_NSID)
		return -ENOENT;
	pthread_mutex_lock(&ctrl->control);
	lock_all(ctrl);
	ns = ctrl->namespaces[nsid];
	ctrl->namespaces[nsid] = NULL;
	unlock_all(ctrl);
	if (!ns) {
		pthread_mutex_unlock(&ctrl->control);
		return -ENOENT;
	}
	while (atomic_load(&ns->in_flight))
		wait_for_io(ctrl);
	atomic_fetch_sub(&ns->backend->references, 1);
	free(ns);
	pthread_mutex_unlock(&ctrl->control);
	return 0;
}

int soft_ctrl_allow(struct soft_ctrl *ctrl, const void *addr, size_t len)
{
	struct prp_range *ranges;
	int ret = 0;

	if (!len || (uintptr_t)addr > UINTPTR_MAX - len)
		return -EINVAL;
	pthread_mutex_lock(&ctrl->control);
	lock_all(ctrl);
	ranges = realloc(ctrl->ranges, (ctrl->memory.count + 1) * sizeof(*ranges));
	if (ranges) {
		ranges[ctrl->memory.count++] = (struct prp_range){ (uintptr_t)addr, len };
		ctrl->ranges = ranges;
		ctrl->memory.ranges = ranges;
	} else {
		ret = -ENOMEM;
	}
	unlock_all(ctrl);
	pthread_mutex_unlock(&ctrl->control);
	return ret;
}

struct soft_qp *soft_ctrl_create_qp(struct soft_ctrl *ctrl, uint16_t qid, uint32_t depth, void *sq,
				    void *cq, void (*on_completion)(void *arg), void *arg)
{
	uintptr_t page_mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	struct soft_qp *qp;
	int err;

	if (!qid || qid > ctrl->max_queues || depth < 2 || depth > 65536 || !sq || !cq ||
	    (uintptr_t)sq & page_mask || (uintptr_t)cq & page_mask) {
		errno = EINVAL;
		return NULL;
	}
	pthread_mutex_lock(&ctrl->control);
	qp = &ctrl->qps[qid];
	err = soft_qp_start(qp, depth, sq, cq, on_completion, arg);
	pthread_mutex_unlock(&ctrl->control);
	if (!err)
		return qp;
	errno = err;
	return NULL;
}

void soft_ctrl_delete_qp(struct soft_qp *qp)
{
	struct soft_ctrl *ctrl = qp->ctrl;

	pthread_mutex_lock(&ctrl->control);
	if (soft_qp_stop(qp)) {
		while (atomic_load(&qp->in_flight))
			wait_for_io(ctrl);
		/* a completion callback may still be running in another thread */
		while (atomic_load(&qp->callbacks))
			usleep(50);
		soft_qp_release(qp);
	}
	pthread_mutex_unlock(&ctrl->control);
}

void *soft_ctrl_doorbells(struct soft_ctrl *ctrl, size_t *len)
{
	*len = ctrl->doorbells_len;
	return ctrl->doorbells;
}

uint32_t *soft_ctrl_doorbell(struct soft_ctrl *ctrl, uint16_t qid, bool cq)
{
	return (uint32_t *)ctrl->doorbells + 2 * qid + cq;
}

void soft_ctrl_ring(void *arg, size_t offset)
{
	struct soft_ctrl *ctrl = arg;
	size_t qid = offset / DOORBELL_BYTES;

	if (qid < 1 || qid > ctrl->max_queues)
		return;
	soft_qp_process(&ctrl->qps[qid]);
}

static bool poll_all(struct soft_ctrl *ctrl)
{
	bool work = false;

	for (unsigned int i = 1; i <= ctrl->max_queues; i++)
		if (atomic_load_explicit(&ctrl->qps[i].in_flight, memory_order_relaxed))
			work |= soft_qp_process(&ctrl->qps[i]);
	return work;
}

bool soft_ctrl_poll(struct soft_ctrl *ctrl)
{
	uint64_t count;

	if (poll_all(ctrl)) {
		atomic_store_explicit(&ctrl->empty_polls, 0, memory_order_relaxed);
		return true;
	}
	/*
	 * io_uring may count up the eventfd after we have taken the completion it tells of. Take
	 * the count away now and then, or somebody's level-triggered epoll would spin; then look
	 * once more, since it may have been of a completion that came just now.
	 */
	if (atomic_fetch_add_explicit(&ctrl->empty_polls, 1, memory_order_relaxed) % DRAIN_POLLS !=
	    DRAIN_POLLS - 1)
		return false;
	return read(ctrl->event_fd, &count, sizeof(count)) > 0 && poll_all(ctrl);
}

int soft_ctrl_fd(struct soft_ctrl *ctrl)
{
	return ctrl->event_fd;
}

static void *controller_thread(void *arg)
{
	struct soft_ctrl *ctrl = arg;
	struct pollfd fd = { .fd = ctrl->event_fd, .events = POLLIN };
	uint64_t count;

	while (!atomic_load(&ctrl->stop)) {
		poll(&fd, 1, 1000);
		if (read(ctrl->event_fd, &count, sizeof(count)) < 0 && errno != EAGAIN &&
		    errno != EINTR)
			break;
		while (soft_ctrl_poll(ctrl))
			;
	}
	return NULL;
}

int soft_ctrl_start_thread(struct soft_ctrl *ctrl)
{
	int err;

	if (ctrl->has_thread)
		return 0;
	err = pthread_create(&ctrl->thread, NULL, controller_thread, ctrl);
	if (!err)
		ctrl->has_thread = true;
	return -err;
}
