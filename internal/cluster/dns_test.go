package cluster

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestTheDNSServiceIsCreatedAsSoonAsItCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var attempts atomic.Int32
		var free atomic.Bool
		client.PrependReactor("create", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			attempts.Add(1)
			return !free.Load(), nil, errors.New("no address is free")
		})
		var messages bytes.Buffer
		d := &dnsService{messages: &messages, program: "svc up"}
		services := client.CoreV1().Services("kube-system")
		starting, started := context.WithCancel(t.Context())
		if err := d.ensure(starting, services, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}); err != nil {
			t.Error(err)
		}
		started() // the start has ended, the attempts go on
		if !strings.Contains(messages.String(), "names of services have no server until the service kube-system/kube-dns can be created, will retry: no address is free") {
			t.Error(messages.String())
		}
		expect := func(when string, want int32) {
			t.Helper()
			time.Sleep(dnsRetryDelay) // of the bubble
			synctest.Wait()
			if got := attempts.Load(); got != want {
				t.Errorf("%s: %d attempts", when, got)
			}
		}
		expect("it still fails", 2)
		free.Store(true)
		expect("it can be created", 3)
		created, err := services.Get(t.Context(), "kube-dns", metav1.GetOptions{})
		if err != nil || created.Spec.Selector["k8s-app"] != "kube-dns" || created.Spec.ClusterIP != "10.0.0.10" || created.Spec.IPFamilies[0] != corev1.IPv4Protocol {
			t.Errorf("%v: %v", created, err)
		}
		expect("it is there", 3)
		if err := d.Stop(); err != nil {
			t.Error(err)
		}
	})
}
