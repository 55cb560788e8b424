/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sysfs_tree.h: what clients look up of a device outside verbs, under /sys/class/infiniband, as a
 * tree of ordinary files. Part of libsofthca.so, for the interposer.
 */
#ifndef SOFTHCA_FRONT_SYSFS_TREE_H
#define SOFTHCA_FRONT_SYSFS_TREE_H

/**
 * softhca_sysfs_tree() - write the tree of all our devices: @root/infiniband/<name>/... and
 * @root/infiniband_verbs/<dev_name>/...
 * @root: an existing directory.
 * Return: 0, or -1 and errno.
 */
__attribute__((visibility("default"))) int softhca_sysfs_tree(const char *root);

#endif
