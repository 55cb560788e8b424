/* SPDX-License-Identifier: BSD-2-Clause */
/* fake_stock.h: which calls the stand-in for the stock library counts */
#ifndef TESTS_FRONT_FAKE_STOCK_H
#define TESTS_FRONT_FAKE_STOCK_H

enum {
	FAKE_GET_LIST,
	FAKE_FREE_LIST,
	FAKE_NAME,
	FAKE_OPEN,
	FAKE_CLOSE,
	FAKE_ALLOC_PD,
	FAKE_REG_MR,
	FAKE_DEALLOC_PD,
	FAKE_ACK_EVENT,
	FAKE_CALLS
};
extern int fake_calls[FAKE_CALLS];

#endif
