package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/apifake"
)

func TestAChangeOfTheAddressesOrTheRuntimeHandlersIsReportedOnce(t *testing.T) {
	changes := make(chan struct{}, 100)
	server := apifake.New(t)
	r := start(t, server, func(o *Options) {
		o.ExternalCloud = true // so that addresses of other writers stay
		o.ShownChanged = func() { changes <- struct{}{} }
	})
	<-changes
	if a := r.Object().Status.Addresses; len(a) == 0 || a[0].Address != "10.0.0.1" {
		t.Errorf("reported with the addresses %v", a)
	}
	r.awaitReady(corev1.ConditionTrue)
	written := server.Node("n")
	written.Labels["a"] = "b"
	server.Put(written)
	r.await("the label is known", func() bool { return r.Object().Labels["a"] == "b" })
	if len(changes) > 0 {
		t.Errorf("%d reports of what has not changed", len(changes))
	}
	written = server.Node("n")
	written.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}}
	server.Put(written)
	<-changes
	if a := r.Object().Status.Addresses; a[0].Address != "10.0.0.2" {
		t.Errorf("reported with the addresses %v", a)
	}
	handlers := status(true, true)
	handlers.Handlers = []*runtimeapi.RuntimeHandler{{Name: "kata"}}
	r.set(handlers)
	<-changes
	if h := r.Object().Status.RuntimeHandlers; len(h) != 1 || h[0].Name != "kata" {
		t.Errorf("reported with the handlers %v", h)
	}
}
