package etcd

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
)

// maxSocketPath is the length in bytes of the longest path that a unix socket
// can have on Linux: sun_path has 108 bytes and ends in NUL (unix(7)). Other
// systems have 104.
const maxSocketPath = 103

// socket is the unix socket that the member listens on.
type socket struct {
	path string
	// dir is set when the socket has a directory of its own.
	dir string
}

// newSocket returns a socket in dir or, if the path of dir is too long, in a new
// directory that only this user can access.
func newSocket(dir string) (socket, error) {
	path, err := filepath.Abs(filepath.Join(dir, "etcd.sock"))
	if err != nil {
		return socket{}, fmt.Errorf("resolve the etcd directory: %w", err)
	}
	if len(path) <= maxSocketPath {
		return socket{path: path}, nil
	}
	own, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "svc-etcd-") // 0700; os.TempDir when unset
	if err != nil {
		return socket{}, fmt.Errorf("make a directory for etcd's socket: %w", err)
	}
	path = filepath.Join(own, "etcd.sock")
	if len(path) > maxSocketPath {
		return socket{}, fmt.Errorf("%s is too long for a unix socket: set TMPDIR or XDG_RUNTIME_DIR to a path of less than %d bytes", path, maxSocketPath-32)
	}
	return socket{path: path, dir: own}, nil
}

func (s socket) url() url.URL {
	return url.URL{Scheme: "unix", Path: s.path}
}

// remove deletes the directory of newSocket. The listener deletes the socket itself.
func (s socket) remove() {
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // if it stays, it is an empty directory
	}
}
