//go:build !linux

package fleet

import (
	"errors"

	"svc.dev/svc/test/launch"
)

func isolate(*launch.Agent, string) error { return errors.New("only Linux runs agents") }
