/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log.h: messages on stderr. SOFTHCA_LOG=error|warn|info|debug chooses how much (default warn).
 * A line reads "softhca: message" (debug lines: "softhca[pid]: ..."). Errors name the thing and
 * the remedy.
 */
#ifndef SOFTHCA_UTIL_LOG_H
#define SOFTHCA_UTIL_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

extern int log_threshold; /* -1 until the environment was read */
int log_threshold_init(void);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline int log_enabled(enum log_level level)
{
	return (int)level <= (log_threshold >= 0 ? log_threshold : log_threshold_init());
}

/* arguments are not evaluated below the threshold */
#define log_at(level, ...)                                                                         \
	do {                                                                                       \
		if (__builtin_expect(log_enabled(level), 0))                                       \
			log_write(level, __VA_ARGS__);                                             \
	} while (0)
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_LEVEL_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
