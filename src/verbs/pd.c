/* SPDX-License-Identifier: BSD-2-Clause */
/* pd.c: protection domains */
#include <stdlib.h>

#include "verbs/objects.h"

struct ibv_pd *softhca_ibv_alloc_pd(struct ibv_context *context)
{
	struct soft_context *ctx = to_context(context);
	struct soft_pd *pd;
	int ret;

	ret = context_start_engine(ctx);
	if (ret)
		return fail_with(ret);
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->ibv.context = context;
	pd->hca.ctx = &ctx->hca;
	ctx->objects++;
	return &pd->ibv;
}

int softhca_ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct soft_pd *p = to_pd(pd);

	if (atomic_load(&p->hca.references))
		return EBUSY;
	to_context(pd->context)->objects--;
	free(p);
	return 0;
}
