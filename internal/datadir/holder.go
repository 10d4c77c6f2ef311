package datadir

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Holder is the process that has a data directory open.
type Holder struct {
	PID   int
	Since time.Time
}

// Holder returns the process that has the directory open; held is false if none has.
func (d Dir) Holder() (holder Holder, held bool, err error) {
	if !d.InUse() {
		return Holder{}, false, nil
	}
	lock, err := os.Open(d.lockFile())
	if err != nil {
		return Holder{}, false, err
	}
	defer lock.Close()
	stat, err := lock.Stat()
	if err != nil {
		return Holder{}, false, err
	}
	// It is written once, when the lock is taken.
	holder.Since = stat.ModTime()
	if holder.PID, err = strconv.Atoi(readPID(lock)); err != nil || holder.PID <= 0 {
		return Holder{}, false, fmt.Errorf("%s is in use, but %s does not name the process: try again", d, d.lockFile())
	}
	return holder, true, nil
}

// Access returns an error if this user cannot find out whether a process has the
// directory open.
func (d Dir) Access() error {
	lock, err := os.Open(d.lockFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--data-dir: cannot read %s: %w; run the command as the user of its svc up", d, err)
	}
	return lock.Close()
}
