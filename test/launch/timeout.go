package launch

import (
	"testing"
	"time"
)

// cleaning is how long a suite may take to end what it has started.
const cleaning = 2 * time.Minute

// SuiteTimeout is how long the specs of a suite may take: at most as long as configured,
// and so long that the suite has cleaned up when go test kills it (-timeout).
func SuiteTimeout(t *testing.T, configured time.Duration) time.Duration {
	if deadline, ok := t.Deadline(); ok {
		return min(configured, time.Until(deadline)-cleaning)
	}
	return configured
}
