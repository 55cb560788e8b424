/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mr.c: memory regions. No kernel pins our pages: what is registered must be mapped at the time,
 * which is checked, and stay so until it is deregistered. IBTA 1.4, 11.2.8.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "util/bytes.h"
#include "util/log.h"
#include "verbs/objects.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* unlike the C library, the kernel may name bits that these headers do not know as optional */
#define KNOWN_ACCESS                                                                               \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |                   \
	 IBV_ACCESS_HUGETLB)

/* Return: 0, EINVAL, EOPNOTSUPP */
static int check_access(unsigned int access)
{
	if (access & IBV_ACCESS_ON_DEMAND)
		return EOPNOTSUPP;
	if (access & ~(unsigned int)KNOWN_ACCESS)
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
	    !(access & IBV_ACCESS_LOCAL_WRITE)) {
		log_debug("reg_mr: REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE");
		return EINVAL;
	}
	return 0;
}

/* every page is mapped; mincore() says so without touching one */
static bool is_mapped(uintptr_t start, uintptr_t end, size_t page)
{
	unsigned char present[4096];
	const size_t step = sizeof(present) * page;

	for (uintptr_t at = start; at < end; at += MIN(step, end - at))
		if (mincore((void *)at, MIN(step, end - at), present))
			return errno != ENOMEM && errno != EFAULT;
	return true;
}

/*
 * The page can be written. EINVAL has many reasons (an old kernel, device memory, no permission);
 * it is the permission when reading works.
 */
static bool is_writable(uintptr_t at, size_t page)
{
	if (!madvise((void *)at, page, MADV_POPULATE_WRITE))
		return true;
	if (errno == EFAULT) /* beyond the end of a file */
		return false;
	return errno != EINVAL || madvise((void *)at, page, MADV_POPULATE_READ);
}

/* Return: 0, EINVAL (empty, or wraps), EFAULT (not there, or cannot be written) */
static int check_memory(const void *addr, size_t length, unsigned int access)
{
	const size_t page = sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)addr & ~(page - 1);
	uintptr_t end;

	if (!length || length > UINTPTR_MAX - page - (uintptr_t)addr)
		return EINVAL;
	end = ((uintptr_t)addr + length + page - 1) & ~(page - 1);
	if (!is_mapped(start, end, page)) {
		log_debug("reg_mr: %p, %zu bytes: not all of it is mapped", addr, length);
		return EFAULT;
	}
	if ((access & IBV_ACCESS_LOCAL_WRITE) &&
	    (!is_writable(start, page) || !is_writable(end - page, page))) {
		log_debug("reg_mr: %p, %zu bytes: LOCAL_WRITE on memory that cannot be written",
			  addr, length);
		return EFAULT;
	}
	return 0;
}

static struct ibv_mr *register_memory(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				      unsigned int access, void (*ring)(void *arg, size_t offset),
				      void *ring_arg)
{
	struct soft_mr *mr;
	int ret;

	ret = check_access(access);
	if (!ret)
		ret = check_memory(addr, length, access);
	if (!ret && iova + length < iova && iova + length != 0)
		ret = EINVAL;
	if (ret)
		return fail_with(ret);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	mr->hca = (struct hca_mr){
		.pd = &to_pd(pd)->hca,
		.addr = addr,
		.iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova,
		.length = length,
		.access = (int)access,
		.ring = ring,
		.ring_arg = ring_arg,
	};
	ret = memory_register(&mr->hca);
	if (ret) {
		free(mr);
		return fail_with(ret);
	}
	mr->ibv = (struct ibv_mr){
		.context = pd->context,
		.pd = pd,
		.addr = addr,
		.length = length,
		.handle = mr->hca.key >> 8,
		.lkey = mr->hca.key,
		.rkey = mr->hca.key,
	};
	to_pd(pd)->hca.references++;
	to_context(pd->context)->objects++;
	return &mr->ibv;
}

struct ibv_mr *softhca_ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return softhca_ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *softhca_ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				       int access)
{
	return softhca_ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *softhca_ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
					unsigned int access)
{
	/* optional flags are hints: dropped where they mean nothing */
	return register_memory(pd, addr, length, iova,
			       access & ~(unsigned int)IBV_ACCESS_OPTIONAL_RANGE, NULL, NULL);
}

CORE_API struct ibv_mr *softhca_reg_doorbell_mr(struct ibv_pd *pd, void *addr, size_t len,
						void (*ring)(void *arg, size_t offset), void *arg)
{
	if (!pd || !context_is_ours(pd->context) || !ring)
		return fail_with(EINVAL);
	return register_memory(pd, addr, len, (uintptr_t)addr, IBV_ACCESS_LOCAL_WRITE, ring, arg);
}

int softhca_ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
			 int access)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT; /* the old MR is as it was */
}

int softhca_ibv_dereg_mr(struct ibv_mr *mr)
{
	struct soft_mr *m = to_mr(mr);
	struct ibv_pd *pd = mr->pd;

	if (atomic_load(&m->references))
		return EBUSY;
	memory_deregister(&m->hca);
	to_pd(pd)->hca.references--;
	to_context(pd->context)->objects--;
	free(m);
	return 0;
}
