package containerd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxLog is the size in bytes beyond which [limitLog] starts a log again.
const maxLog = 10 << 20

// previousLog returns the path of the log before the one at path.
func previousLog(path string) string { return path + ".1" }

// openLog creates a new log file, and keeps the previous one, of a long one the end.
// Processes have to append to it: [limitLog] makes it shorter.
func openLog(path string) (*os.File, error) {
	if limited, _ := limitLog(path); !limited { // without space for a copy all of it is kept
		if err := os.Rename(path, previousLog(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
}

// limitLog copies the end of a log that is longer than maxLog to the previous log, empties it,
// and reports whether it has. It cannot be renamed, because containerd has it open and never
// opens it again. What is written between the last read and the truncation is lost.
func limitLog(path string) (limited bool, err error) {
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil || info.Size() <= maxLog {
		return false, err
	}
	if _, err := log.Seek(info.Size()-maxLog, io.SeekStart); err != nil {
		return false, err
	}
	// The older log makes room for the copy first, for a disk that is full.
	previous, err := os.OpenFile(previousLog(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return false, err
	}
	_, err = io.Copy(previous, log)
	if err := errors.Join(err, previous.Close()); err != nil {
		return false, err
	}
	return true, log.Truncate(0)
}

// logTail is how much of the end of a log is read.
const logTail = 4 << 10

// endOfLog returns the end of containerd's log for an error message.
func endOfLog(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	content = bytes.TrimSpace(content[max(0, len(content)-logTail):])
	return fmt.Sprintf("; its log, %s, ends with: %s", path, content[bytes.LastIndexByte(content, '\n')+1:])
}
