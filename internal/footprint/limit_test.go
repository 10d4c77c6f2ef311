package footprint

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

func TestTheHeapIsBoundedByTheLimitOfTheCgroup(t *testing.T) {
	const gb = 1 << 30
	for name, test := range map[string]struct {
		provider memlimit.Provider
		set      string // GOMEMLIMIT
		want     int64
	}{
		"a limit":            {provider: memlimit.Limit(10 * gb), want: 9 * gb},
		"no limit":           {provider: func() (uint64, error) { return 0, memlimit.ErrNoLimit }, want: math.MaxInt64},
		"no cgroup":          {provider: func() (uint64, error) { return 0, errors.New("no cgroup") }, want: 3 * gb},
		"one of the process": {provider: memlimit.Limit(10 * gb), set: "3GiB", want: 3 * gb},
	} {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMemoryLimit(3 * gb)
			defer debug.SetMemoryLimit(before)
			for _, variable := range []string{"GOMEMLIMIT", "AUTOMEMLIMIT"} {
				t.Setenv(variable, test.set) // restores it at the end
				if err := os.Unsetenv(variable); err != nil {
					t.Fatal(err)
				}
			}
			if test.set != "" {
				t.Setenv("GOMEMLIMIT", test.set)
			}
			limit(t.Context(), test.provider)
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the limit is %d, want %d", got, test.want)
			}
		})
	}
}
