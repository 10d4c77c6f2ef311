package batch

import (
	"os"
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestGolden(t *testing.T) {
	resourcetest.Golden(t, Kinds())
}

// input is the content of a golden input.
func input(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + file + "/input.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
