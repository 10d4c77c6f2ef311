//go:build !linux

package footprint

import (
	"errors"
	"time"
)

// usualSlack is not known.
func usualSlack() time.Duration { return 0 }

// setSlack leaves timers to the system.
func setSlack(time.Duration) error { return errors.ErrUnsupported }

// processorTime is not known.
func processorTime() time.Duration { return 0 }
