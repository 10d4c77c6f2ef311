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

	"svc.dev/svc/svclet/netnstest"
	"svc.dev/svc/svclet/services"
)

// sort is a sort of services, with a number of endpoints each.
type sort struct {
	name      string
	endpoints int
	spec      func(s *corev1.Service, i int)
}

func sorts() []sort {
	nodePort := func(s *corev1.Service, i int) {
		s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 20_000+int32(i)
	}
	return []sort{
		{"ClusterIP", 5, func(*corev1.Service, int) {}},
		{"NodePort", 5, nodePort},
		{"Local", 5, func(s *corev1.Service, i int) {
			nodePort(s, i)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}},
		{"SourceRanges", 5, func(s *corev1.Service, i int) {
			nodePort(s, i)
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/24"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: netip.AddrFrom4([4]byte{13, 0, byte(i >> 8), byte(i)}).String()}}
		}},
		{"Affinity", 5, func(s *corev1.Service, _ int) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }},
		{"12Endpoints", 12, func(*corev1.Service, int) {}},
	}
}

// BenchmarkServices measures, with services of several endpoints each in the kernel, the first
// write and then changes of one service: an endpoint by another one, and one endpoint less
// or more.
func BenchmarkServices(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		for _, of := range sorts() {
			b.Run(fmt.Sprint(n, of.name), func(b *testing.B) {
				netnstest.Run(b, "nft", func(b *testing.B) { benchmark(b, n, of) })
			})
		}
	}
}

// endpointsOf returns the endpoints of a service, or those of its next change.
func endpointsOf(of sort, service, change int) *discoveryv1.EndpointSlice {
	s := slice(fmt.Sprintf("s%d-1", service), fmt.Sprintf("s%d", service), "")
	s.Endpoints = nil
	for i := range of.endpoints - change%2 {
		at := service*of.endpoints + i
		address, node := netip.AddrFrom4([4]byte{11, byte(at >> 16), byte(at >> 8), byte(at)}), "there"
		if i == 0 && change%4 > 1 {
			address = netip.AddrFrom4([4]byte{12, byte(at >> 16), byte(at >> 8), byte(at)})
		}
		if i < 2 {
			node = "here"
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: &node})
	}
	return s
}

func benchmark(b *testing.B, n int, of sort) {
	store := services.New()
	p := newKernelProxy(b, store)
	if p == nil {
		return
	}
	var all, endpoints []any
	for i := range n {
		s := service(fmt.Sprintf("s%d", i), netip.AddrFrom4([4]byte{10, 96 + byte(i>>16), byte(i >> 8), byte(i)}).String())
		of.spec(s, i)
		all = append(all, s)
		endpoints = append(endpoints, endpointsOf(of, i, 0))
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
		if err := store.EndpointSlices().Update(endpointsOf(of, n/2, change)); err != nil {
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
