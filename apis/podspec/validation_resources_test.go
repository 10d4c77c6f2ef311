package podspec

import (
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestNamesOfHugePagesWithLargeExponentsAreRefusedWithoutReadingThem(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	multiple := isMultipleOfPage("hugepages-1e-9999999", resource.MustParse("1"))
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; multiple || allocated > 1<<20 {
		t.Errorf("multiple %t, %d bytes allocated", multiple, allocated)
	}
}
