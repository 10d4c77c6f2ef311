package nodeipam

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestClusters(t *testing.T) {
	for _, test := range []struct {
		name  string
		flags string
		want  string // the clusters, or parts of the error
	}{
		{"the default sizes", "--cluster-cidr=10.244.0.0/16,fd00::/48", "10.244.0.0/16 by 24 fd00::/48 by 64 "},
		{"IPv6 first", "--cluster-cidr=fd00::/48,10.244.0.0/16 --node-cidr-mask-size-ipv4=25 --node-cidr-mask-size-ipv6=80", "fd00::/48 by 80 10.244.0.0/16 by 25 "},
		{"one size for one family", "--cluster-cidr=10.244.0.0/16 --node-cidr-mask-size=26", "10.244.0.0/16 by 26 "},
		{"host bits do not matter", "--cluster-cidr=10.244.1.2/16", "10.244.0.0/16 by 24 "},
		{"no range", "", "--cluster-cidr: --allocate-node-cidrs needs it"},
		{"no CIDR", "--cluster-cidr=10.244.0.0", `--cluster-cidr: "10.244.0.0" is not a CIDR`},
		{"two ranges of a family", "--cluster-cidr=10.1.0.0/16,10.2.0.0/16", "--cluster-cidr: give one CIDR, or two of different families"},
		{"three ranges", "--cluster-cidr=10.1.0.0/16,fd00::/48,fd01::/48", "--cluster-cidr: give one CIDR"},
		{"one size for two families", "--cluster-cidr=10.1.0.0/16,fd00::/48 --node-cidr-mask-size=24", "--node-cidr-mask-size: give --node-cidr-mask-size-ipv4 and"},
		{"two sizes for a family", "--cluster-cidr=10.1.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24", "--node-cidr-mask-size: do not give"},
		{"the size of a family that is not there", "--cluster-cidr=10.1.0.0/16 --node-cidr-mask-size-ipv6=64", "--node-cidr-mask-size-ipv6: --cluster-cidr is IPv4 only"},
		{"a node that is larger than the cluster", "--cluster-cidr=10.1.0.0/16 --node-cidr-mask-size=12", "--node-cidr-mask-size: 12 must be between 16"},
		{"by default, too", "--cluster-cidr=10.1.0.0/26", "--node-cidr-mask-size-ipv4: 24 must be between 26"},
		{"a prefix that is too long", "--cluster-cidr=10.1.0.0/16 --node-cidr-mask-size-ipv4=33", "--node-cidr-mask-size-ipv4: 33 must be between 16"},
		{"a bad service range", "--cluster-cidr=10.1.0.0/16 --service-cluster-ip-range=x", `--service-cluster-ip-range: "x" is not a CIDR`},
		{"nothing is wrong if nothing is allocated", "--allocate-node-cidrs=false --cluster-cidr=x", "off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &options{allocate: true}
			fs := pflag.NewFlagSet("", pflag.ContinueOnError)
			o.addFlags(fs)
			o.allocate = true
			if err := fs.Parse(strings.Fields(test.flags)); err != nil {
				t.Fatal(err)
			}
			got := "off"
			if errs := o.validate(); len(errs) > 0 {
				got = fmt.Sprint(errs)
			} else if o.allocate {
				clusters, err := o.clusters()
				if err != nil {
					t.Fatal(err)
				}
				got = ""
				for _, c := range clusters {
					got += fmt.Sprintf("%s by %d ", c.prefix, c.bits)
				}
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
