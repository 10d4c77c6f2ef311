package datadir

import (
	"fmt"
	"os"
	"strings"
)

// readPID returns the process ID in the lock file, for messages.
func readPID(lock *os.File) string {
	content := make([]byte, 32)
	n, _ := lock.ReadAt(content, 0) // ends in io.EOF
	if pid := strings.TrimSpace(string(content[:n])); pid != "" {
		return pid
	}
	return "(unknown)"
}

func writePID(lock *os.File) error {
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err := lock.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return err
}
