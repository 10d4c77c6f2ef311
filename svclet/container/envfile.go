package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
)

// maxEnvFile bounds a file of variables, in bytes: a container writes it, and must
// not fill the agent's memory.
const maxEnvFile = 1 << 20

// fileValue returns the value of a fileKeyRef: a variable that another container
// has written to a file in a shared volume (KEP-3721). Errors do not contain the
// file's content.
func fileValue(in Input, ref *corev1.FileKeySelector) (value string, set bool, err error) {
	volume, mounted := in.Volumes[ref.VolumeName]
	if !mounted || volume.HostPath == "" {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	content, err := readInside(volume.HostPath, ref.Path)
	if err == nil {
		value, err = envFileValue(content, ref.Key)
	}
	switch {
	case err != nil:
		return "", false, errors.New("couldn't parse env file")
	case value != "":
		return value, true, nil
	case ref.Optional != nil && *ref.Optional:
		return "", false, nil
	default:
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
}

// readInside reads a file in a directory that a pod can write to: no symlink leads
// out of it, and only regular files are read (a pipe would block).
func readInside(directory, path string) (string, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return "", err
	}
	defer root.Close()
	file, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxEnvFile+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxEnvFile {
		return "", fmt.Errorf("%s is longer than %d bytes", path, maxEnvFile)
	}
	return string(content), nil
}

// envFileValue finds a variable in a file of NAME='value' lines, the syntax on
// which all shells agree: values are in single quotes, may contain line breaks,
// and are literal; comments are at the end of a line or on a line of their own; a
// space after "=" makes the value empty. The value of a variable that does not
// exist is empty too.
func envFileValue(content, key string) (string, error) {
	for content != "" {
		content = strings.TrimLeft(content, " \t\r\n")
		if content == "" {
			break
		}
		line, rest, _ := strings.Cut(content, "\n")
		if strings.HasPrefix(line, "#") {
			content = rest
			continue
		}
		name, value, assigned := strings.Cut(line, "=")
		switch {
		case !assigned:
			return "", errors.New("missing '='")
		case name == "" || strings.TrimRight(name, " \t") != name:
			return "", errors.New("a variable's name must come right before '='")
		case strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t"):
			if name == key {
				return "", nil
			}
			content = rest
			continue
		case !strings.HasPrefix(value, "'"):
			return "", errors.New("value must be enclosed in single quotes")
		}
		quoted, after, closed := strings.Cut(content[len(name)+len("='"):], "'")
		if !closed {
			return "", errors.New("unclosed single quote")
		}
		tail, rest, _ := strings.Cut(after, "\n")
		if tail = strings.TrimSpace(tail); tail != "" && !strings.HasPrefix(tail, "#") {
			return "", errors.New("unexpected content after closing quote")
		}
		if name == key {
			return quoted, nil
		}
		content = rest
	}
	return "", nil
}
