// Package projectquota owns the project quotas by which directories are measured: the kernel
// counts the blocks and inodes of all files with the project ID of a directory, also of those
// that are deleted and still open (KEP-1029, the feature gate
// LocalStorageCapacityIsolationFSQuotaMonitoring). Nothing is limited.
//
// It needs Linux 5.14, and a file system that is mounted with project quotas: ext4 or XFS with
// prjquota.
package projectquota
