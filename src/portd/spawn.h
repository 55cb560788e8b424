/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spawn.h: starting the port daemon from whatever program the library lives in.
 */
#ifndef SOFTHCA_PORTD_SPAWN_H
#define SOFTHCA_PORTD_SPAWN_H

/**
 * portd_spawn() - start a daemon that belongs to nobody: own session, no terminal, no descriptor
 * of ours, default signals.
 * Runs `softhca portd`: the program in SOFTHCA_PORTD, or the one beside this library
 * (installed or in the build tree), or the one installed; without any, the daemon runs in a
 * forked copy of this process.
 * Return: 0 (it may still fail, or find another one running), or a negative errno.
 */
int portd_spawn(void);

#endif
