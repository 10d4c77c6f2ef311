package footprint

import (
	"sync"
	"testing"
)

// BenchmarkStack is what a goroutine of some depth costs: with its stack grown
// at the beginning, and on the way.
func BenchmarkStack(b *testing.B) {
	for _, bm := range []struct {
		name  string
		begin func()
	}{{"grown at the beginning", GrowStack}, {"grown on the way", func() {}}} {
		b.Run(bm.name, func(b *testing.B) {
			for b.Loop() {
				var end sync.WaitGroup
				end.Go(func() {
					bm.begin()
					descend(150)
				})
				end.Wait()
			}
		})
	}
}

// descend uses about 100 bytes of the stack n times.
//
//go:noinline
func descend(n int) int {
	var room [8]int
	room[n&7] = n
	if n == 0 {
		return room[0]
	}
	return descend(n-1) + room[n&7]
}
