//go:build linux

package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"svc.dev/svc/svclet/services"
)

// BenchmarkServices measures, with services of five endpoints each in the kernel, the first
// write and then changes of one service: an endpoint by another one, and one endpoint less
// or more.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		for _, kind := range []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort} {
			b.Run(fmt.Sprint(n, kind), func(b *testing.B) {
				inNamespace(b, func(b *testing.B) { benchmark(b, n, kind) })
			})
		}
	}
}

// endpointsOf returns five endpoints of a service, or those of its next change.
func endpointsOf(service, change int) *discoveryv1.EndpointSlice {
	s := slice(fmt.Sprintf("s%d-1", service), fmt.Sprintf("s%d", service), "")
	s.Endpoints = nil
	for i := range 5 - change%2 {
		at := service*5 + i
		address := netip.AddrFrom4([4]byte{11, byte(at >> 16), byte(at >> 8), byte(at)})
		if i == 0 && change%4 > 1 {
			address = netip.AddrFrom4([4]byte{12, byte(at >> 16), byte(at >> 8), byte(at)})
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: ptr.To("there")})
	}
	return s
}

func benchmark(b *testing.B, n int, kind corev1.ServiceType) {
	store := services.New()
	p := newKernelProxy(b, store)
	if p == nil {
		return
	}
	var all, endpoints []any
	for i := range n {
		s := service(fmt.Sprintf("s%d", i), netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}).String())
		if s.Spec.Type = kind; kind == corev1.ServiceTypeNodePort {
			s.Spec.Ports[0].NodePort = 20_000 + int32(i)
		}
		all = append(all, s)
		endpoints = append(endpoints, endpointsOf(i, 0))
	}
	if err := errors.Join(store.Services().Replace(all, ""), store.EndpointSlices().Replace(endpoints, "")); err != nil {
		b.Error(err)
	}
	began := time.Now()
	if !p.sync(b.Context()) {
		b.Error(p.Problem())
	}
	first := time.Since(began)
	var took []time.Duration
	change := 0
	for b.Loop() {
		change++
		if err := store.EndpointSlices().Update(endpointsOf(n/2, change)); err != nil {
			b.Error(err)
		}
		began := time.Now()
		if !p.sync(b.Context()) {
			b.Error(p.Problem())
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(first.Milliseconds()), "ms-first")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}
