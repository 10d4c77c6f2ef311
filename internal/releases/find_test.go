package releases

import (
	"reflect"
	"testing"
)

func TestFindTypeReturnsEachTypeOfTheTable(t *testing.T) {
	table := load(t)
	for name, want := range table.types {
		if got := FindType(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for _, name := range []string{"", "a/v1.A", "core/v1.Pod ", "core/v1.PodSpe", "zzz/v1.Z"} {
		if got := FindType(name); got != nil {
			t.Errorf("%q: %+v", name, got)
		}
	}
}

func BenchmarkFindType(b *testing.B) {
	for b.Loop() {
		FindType("core/v1.PodSpec")
	}
}
