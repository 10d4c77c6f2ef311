package core

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTheEndpointsCellShowsThreeAndCountsTheOthers(t *testing.T) {
	subset := func(addresses, ports int) corev1.EndpointSubset {
		var s corev1.EndpointSubset
		for i := range addresses {
			s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&0xff, i&0xff)})
		}
		for i := range ports {
			s.Ports = append(s.Ports, corev1.EndpointPort{Port: int32(i + 1)})
		}
		return s
	}
	for want, subsets := range map[string][]corev1.EndpointSubset{
		"<none>":                                 nil,
		"":                                       {subset(0, 1)},
		"10.0.0.0":                               {subset(1, 0)},
		"10.0.0.0:1,10.0.0.0:2,10.0.0.0:3":       {subset(1, 3)},
		"10.0.0.0:1,10.0.0.1:1,10.0.0.0":         {subset(2, 1), subset(1, 0)},
		"10.0.0.0,10.0.0.1,10.0.0.2 + 5 more...": {subset(4, 0), subset(2, 2)},
		"10.0.0.0:1,10.0.0.1:1,10.0.0.2:1 + 399999997 more...": {subset(20_000, 20_000)}, // more than memory
	} {
		if got := endpointList(subsets); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
