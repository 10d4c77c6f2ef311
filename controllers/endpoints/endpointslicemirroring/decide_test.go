package endpointslicemirroring

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func TestMirror(t *testing.T) {
	http := []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}
	for _, test := range []struct {
		rule    string
		subsets []corev1.EndpointSubset
		want    string
	}{
		{"no addresses have no slices", nil, ""},
		{"a subset is a slice", []corev1.EndpointSubset{{Addresses: addresses("192.0.2.1", "192.0.2.2"), NotReadyAddresses: addresses("192.0.2.3"), Ports: http}},
			"IPv4 80: 192.0.2.1 192.0.2.2 not 192.0.2.3"},
		{"each family has its own", []corev1.EndpointSubset{{Addresses: addresses("2001:0db8::1", "192.0.2.1"), Ports: http}},
			"IPv4 80: 192.0.2.1; IPv6 80: 2001:db8::1"},
		{"subsets are brought in their canonical form", []corev1.EndpointSubset{
			{Addresses: addresses("192.0.2.1"), Ports: http},
			{Addresses: addresses("192.0.2.1"), Ports: []corev1.EndpointPort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}},
		}, "IPv4 80,443: 192.0.2.1"},
		{"addresses beyond the limit are left out, those that are not ready first",
			[]corev1.EndpointSubset{{Addresses: addresses("192.0.2.1", "192.0.2.2", "192.0.2.3"), NotReadyAddresses: addresses("192.0.2.4", "192.0.2.5")}},
			"IPv4 : 192.0.2.1 192.0.2.2 192.0.2.3, 2 too many"},
		{"so is what is no address", []corev1.EndpointSubset{{Addresses: addresses("web", "192.0.2.1")}}, "IPv4 : 192.0.2.1, 1 invalid"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			m := mirror(&corev1.Endpoints{Subsets: test.subsets}, metav1.OwnerReference{}, 3)
			if diff := cmp.Diff(test.want, describe(m)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestObjectMeta(t *testing.T) {
	owner := metav1.OwnerReference{UID: "1"}
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "web",
		Labels:      map[string]string{"app": "web", discoveryv1.LabelManagedBy: "me"},
		Annotations: map[string]string{"own": "kept", corev1.LastAppliedConfigAnnotation: "{}", corev1.EndpointsLastChangeTriggerTime: "now"},
	}}
	want := metav1.ObjectMeta{
		Namespace: "default", GenerateName: "web-", OwnerReferences: []metav1.OwnerReference{owner},
		Labels:      map[string]string{"app": "web", discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: manager},
		Annotations: map[string]string{"own": "kept"},
	}
	if diff := cmp.Diff(want, objectMeta(e, owner)); diff != "" {
		t.Error(diff)
	}
}

func TestMirrored(t *testing.T) {
	plain := &corev1.Service{}
	for _, test := range []struct {
		rule    string
		meta    metav1.ObjectMeta
		service *corev1.Service
		want    bool
	}{
		{"Endpoints of a service without a selector", metav1.ObjectMeta{}, plain, true},
		{"not those of a service with one", metav1.ObjectMeta{}, &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}}}, false},
		{"nor those without a service", metav1.ObjectMeta{}, nil, false},
		{"nor those that are not to be mirrored", metav1.ObjectMeta{Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"}}, plain, false},
		{"nor what elects leaders", metav1.ObjectMeta{Annotations: map[string]string{resourcelock.LeaderElectionRecordAnnotationKey: "{}"}}, plain, false},
	} {
		t.Run(test.rule, func(t *testing.T) {
			if got := mirrored(&corev1.Endpoints{ObjectMeta: test.meta}, test.service); got != test.want {
				t.Errorf("mirrored: %t", got)
			}
		})
	}
}

func TestCompare(t *testing.T) {
	slice := func(name string, family discoveryv1.AddressType, port int32, address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: name}, AddressType: family,
			Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
	}
	type list = []*discoveryv1.EndpointSlice
	const v4, v6 = discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6
	for _, test := range []struct {
		rule             string
		wanted, existing list
		want             string
	}{
		{"what is right stays", list{slice("", v4, 80, "192.0.2.1")}, list{slice("a", v4, 80, "192.0.2.1")}, ""},
		{"what is missing is made", list{slice("", v4, 80, "192.0.2.1")}, nil, "create "},
		{"what is not wanted goes", nil, list{slice("a", v4, 80, "192.0.2.1")}, "remove a"},
		{"other addresses come into the slice with the same ports",
			list{slice("", v4, 80, "192.0.2.1")}, list{slice("a", v4, 81, "192.0.2.1"), slice("b", v4, 80, "192.0.2.2")}, "update b, remove a"},
		{"a slice without use takes other ports", list{slice("", v4, 80, "192.0.2.1")}, list{slice("a", v4, 81, "192.0.2.1")}, "update a"},
		{"but no other family", list{slice("", v6, 80, "2001:db8::1")}, list{slice("a", v4, 80, "192.0.2.1")}, "create , remove a"},
		{"a copy goes", list{slice("", v4, 80, "192.0.2.1")}, list{slice("a", v4, 80, "192.0.2.1"), slice("b", v4, 80, "192.0.2.1")}, "remove b"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p := compare(test.wanted, test.existing)
			var words []string
			for _, s := range p.create {
				words = append(words, "create "+s.Name)
			}
			for _, s := range p.update {
				words = append(words, "update "+s.Name)
				if s.ResourceVersion != s.Name {
					t.Errorf("%s is updated whatever its version", s.Name)
				}
			}
			for _, s := range p.remove {
				words = append(words, "remove "+s.Name)
			}
			if diff := cmp.Diff(test.want, strings.Join(words, ", ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func addresses(ips ...string) []corev1.EndpointAddress {
	var all []corev1.EndpointAddress
	for _, ip := range ips {
		all = append(all, corev1.EndpointAddress{IP: ip})
	}
	return all
}

func describe(m image) string {
	var all []string
	for _, s := range m.slices {
		var ports, endpoints []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprint(*p.Port))
		}
		for _, e := range s.Endpoints {
			if !*e.Conditions.Ready {
				endpoints = append(endpoints, "not")
			}
			endpoints = append(endpoints, e.Addresses...)
		}
		all = append(all, fmt.Sprintf("%s %s: %s", s.AddressType, strings.Join(ports, ","), strings.Join(endpoints, " ")))
	}
	text := strings.Join(all, "; ")
	if m.invalid > 0 {
		text += fmt.Sprintf(", %d invalid", m.invalid)
	}
	if m.tooMany > 0 {
		text += fmt.Sprintf(", %d too many", m.tooMany)
	}
	return text
}
