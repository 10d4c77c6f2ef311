package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mountHostPath checks the path of a volume of type hostPath against its type, and
// creates it if the type says so.
func mountHostPath(name string, source *corev1.HostPathVolumeSource, readOnly bool) (mountedVolume, error) {
	mounted := mountedVolume{name: name, Mounted: Mounted{HostPath: source.Path, ReadOnly: readOnly}}
	if err := checkNoParent(source.Path); err != nil {
		return mounted, fmt.Errorf("invalid HostPath `%s`: %w", source.Path, err)
	}
	if source.Type == nil || *source.Type == corev1.HostPathUnset {
		return mounted, nil
	}
	return mounted, checkHostPath(source.Path, *source.Type)
}

// checkNoParent refuses paths with "..".
func checkNoParent(path string) error {
	if slices.Contains(strings.Split(path, "/"), "..") {
		return errors.New("must not contain '..'")
	}
	return nil
}

// hostPathTypes are the types of hostPath volumes. make, if set, creates a path
// that does not exist.
var hostPathTypes = map[corev1.HostPathType]struct {
	name string
	mode fs.FileMode
	make func(path string) error
}{
	corev1.HostPathDirectory:         {name: "directory", mode: fs.ModeDir},
	corev1.HostPathDirectoryOrCreate: {name: "directory", mode: fs.ModeDir, make: makeHostDir},
	corev1.HostPathFile:              {name: "file"},
	corev1.HostPathFileOrCreate:      {name: "file", make: makeHostFile},
	corev1.HostPathSocket:            {name: "socket file", mode: fs.ModeSocket},
	corev1.HostPathCharDev:           {name: "character device", mode: fs.ModeDevice | fs.ModeCharDevice},
	corev1.HostPathBlockDev:          {name: "block device", mode: fs.ModeDevice},
}

func checkHostPath(path string, wanted corev1.HostPathType) error {
	t, known := hostPathTypes[wanted]
	if !known {
		return fmt.Errorf("%s is an invalid volume type", wanted)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && t.make != nil {
		return t.make(path)
	}
	if err != nil || info.Mode().Type() != t.mode {
		return fmt.Errorf("hostPath type check failed: %s is not a %s", path, t.name)
	}
	return nil
}

func makeHostDir(path string) error { return os.MkdirAll(path, 0o755) }

// makeHostFile creates a file, but not its parent directory.
func makeHostFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}
