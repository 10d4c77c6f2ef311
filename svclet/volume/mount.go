package volume

// Mounter changes the table of mounts. Paths are absolute and without symlinks.
type Mounter interface {
	// Mounted says whether something is mounted on path. A path that does not
	// exist is an error.
	Mounted(path string) (bool, error)
	// Mount mounts a file system of the given type, with options separated by
	// commas.
	Mount(fstype, target, options string) error
	// Bind mounts source, which may be a symlink of /proc/self/fd, on target.
	Bind(source, target string) error
	// Unmount detaches what is mounted topmost on path, even if it is in use,
	// and never follows a symlink. That nothing is mounted is no error.
	Unmount(path string) error
	// Under lists what is mounted on dir and below it, in the order of mounting;
	// a path on which several are stacked is listed as often.
	Under(dir string) ([]Mount, error)
}

// Mount is one line of the table of mounts.
type Mount struct {
	// Path is where it is mounted.
	Path string
	// Device and Root tell what is mounted: two mounts of the same directory
	// have both in common.
	Device, Root string
	// Type and Options are those of the file system.
	Type, Options string
}
