package traffic

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"svc.dev/svc/test/linearize/history"
	"svc.dev/svc/test/linearize/model"
)

// maxUnexpected bounds how many unexpected responses are kept.
const maxUnexpected = 20

// record is what all clients have received.
type record struct {
	start time.Time
	// highest is the highest version in the response to a write or a consistent read.
	highest atomic.Uint64
	// last is the version before the last change, 0 while it is not known.
	last atomic.Uint64

	mu         sync.Mutex
	operations []model.Operation
	run        history.Run
	unexpected []string
}

// now is the time for operations.
func (r *record) now() int64 { return int64(time.Since(r.start)) }

// see notes that a client has received a version.
func (r *record) see(version uint64) {
	for {
		highest := r.highest.Load()
		if version <= highest || r.highest.CompareAndSwap(highest, version) {
			return
		}
	}
}

// finished reports whether a version is that of the last change, or a later one.
func (r *record) finished(version uint64) bool {
	last := r.last.Load()
	return last != 0 && version > last
}

// add calls f, which may append to the record.
func (r *record) add(f func(r *record)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r)
}

func (r *record) unexpectedf(format string, args ...any) {
	r.add(func(r *record) {
		if len(r.unexpected) < maxUnexpected {
			r.unexpected = append(r.unexpected, fmt.Sprintf(format, args...))
		}
	})
}
