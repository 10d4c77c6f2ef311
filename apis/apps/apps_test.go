package apps

import (
	"testing"

	"svc.dev/svc/apis/kindtest"
)

func TestGolden(t *testing.T) {
	kindtest.Golden(t, Kinds())
}
