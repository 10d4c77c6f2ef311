package apps

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestGolden(t *testing.T) {
	resourcetest.Golden(t, Kinds())
}
