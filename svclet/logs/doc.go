// Package logs owns the log files of containers, which the runtime writes: it
// rotates and compresses large ones, links them for log collectors, and removes
// those of containers and pods that are gone.
//
// A log 0.log becomes 0.log.20060102-150405 when it is rotated, and
// 0.log.20060102-150405.gz at the next rotation, by when readers that follow it
// have finished. The next rotation cleans up after a crash. Names, paths and
// limits are those of kubelet 1.36; unlike it, a log is compressed after the current one
// was rotated, so that neither a fast writer nor a full disk puts off a rotation.
package logs
