package cluster

import (
	"testing"

	"github.com/spf13/pflag"

	"svc.dev/svc/internal/datadir"
	"svc.dev/svc/svclet/containerd"
)

func TestContainerdForwardsConnectionsToServicesIfTheNodeHasTheServiceProxy(t *testing.T) {
	for _, test := range []struct {
		args []string
		want bool
	}{{nil, true}, {[]string{"--service-proxy=false"}, false}} {
		o, flags := NewNodeOptions(), pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(flags)
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		if got := o.Containerd(datadir.Dir(t.TempDir()), containerd.Programs{}).ServiceProxy; got != test.want {
			t.Errorf("%v: containerd's is %t, want %t", test.args, got, test.want)
		}
	}
}
