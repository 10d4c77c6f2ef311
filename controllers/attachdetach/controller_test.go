package attachdetach

import (
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagsOfKubeControllerManager(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--disable-force-detach-on-timeout", ""},
		{"--disable-attach-detach-reconcile-sync", ""},
		{"--attach-detach-reconcile-sync-period=1s", ""},
		{"--attach-detach-reconcile-sync-period=999ms", "--attach-detach-reconcile-sync-period: 999ms must be at least 1s"},
	} {
		c, flags := New(), pflag.NewFlagSet("", pflag.ContinueOnError)
		c.Flags(flags)
		if err := flags.Parse([]string{test.arg}); err != nil {
			t.Errorf("%s: %v", test.arg, err)
		}
		got := ""
		for _, err := range c.Validate() {
			got += err.Error()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.arg, got, test.want)
		}
	}
}
