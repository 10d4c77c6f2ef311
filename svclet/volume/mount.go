package volume

// Mounter changes the mount table. Paths are absolute and contain no symlinks.
type Mounter interface {
	// Mounted reports whether path is a mount point. A path that does not exist is an
	// error. It does not enter the mount, whose file system may not respond.
	Mounted(path string) (bool, error)
	// Mount mounts a file system of the given type, with comma-separated options.
	Mount(fstype, target, options string) error
	// Bind mounts source, which may be a symlink in /proc/self/fd, on target.
	Bind(source, target string) error
	// Unmount lazily detaches the topmost mount on path and never follows a symlink.
	// It is not an error if nothing is mounted.
	Unmount(path string) error
	// Under lists the mounts on dir and below it, in mount order; a path with several
	// mounts is listed several times.
	Under(dir string) ([]Mount, error)
}

// IsMounted is [Mounter.Mounted] of the kernel.
func IsMounted(path string) (bool, error) { return kernel{}.Mounted(path) }

// Mount is an entry of the mount table.
type Mount struct {
	// Path is the mount point.
	Path string
	// Device and Root identify what is mounted: they are equal for two mounts of one
	// directory.
	Device, Root string
	// Type and Options are the file system's.
	Type, Options string
}
