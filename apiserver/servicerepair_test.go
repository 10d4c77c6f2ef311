package apiserver_test

import (
	"encoding/json"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"svc.dev/svc/apiserver/release"
)

// The source is kube-apiserver (pkg/registry/core/service/portallocator/controller/repair.go and
// ipallocator/controller/repair.go).
func TestEventsTellOfServicesOutsideOfTheServersRanges(t *testing.T) {
	for minor, address := range map[int]string{
		28: "ClusterIPOutOfRange Cluster IP [IPv4]:10.0.0.50 is not within the service CIDR 10.1.0.0/24; please recreate service",
		37: "", // the address stays in the range of the ServiceCIDR kubernetes
	} {
		t.Run(release.Release{Major: 1, Minor: minor}.String(), func(t *testing.T) {
			o, _ := newOptions(t)
			o.Release = release.Release{Major: 1, Minor: minor}
			s := startStage(t, o)
			s.must(http.MethodPost, "/api/v1/namespaces/default/services",
				`{"metadata": {"name": "web"}, "spec": {"type": "NodePort", "clusterIP": "10.0.0.50", "ports": [{"port": 80, "nodePort": 30500}]}}`)
			s.stop(t)
			var err error
			if o.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
			o.Network.ServiceNodePortRange = *utilnet.ParsePortRangeOrDie("31000-32000")
			o.Network.ServiceClusterIPRange = "10.1.0.0/24"
			s = startStage(t, o)
			want := []string{"PortOutOfRange Port 30500 is not within the port range 31000-32000; please recreate service"}
			if address != "" {
				want = append(want, address)
			}
			NewWithT(t).Eventually(func() ([]string, error) {
				_, body := s.request("admin", http.MethodGet, "/apis/events.k8s.io/v1/namespaces/default/events", "", nil)
				var list eventsv1.EventList
				if err := json.Unmarshal([]byte(body), &list); err != nil {
					return nil, err
				}
				var got []string
				for _, e := range list.Items {
					if e.Regarding.Kind == "Service" && e.Regarding.Name == "web" && strings.HasSuffix(e.ReportingController, "allocator-repair-controller") {
						got = append(got, e.Reason+" "+e.Note)
					}
				}
				slices.Sort(got)
				return got, nil
			}).WithTimeout(time.Minute).Should(ConsistOf(want))
		})
	}
}
