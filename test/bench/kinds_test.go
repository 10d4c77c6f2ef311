package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

func TestBodiesAreStrictlyValidAndOfTheirSize(t *testing.T) {
	for _, test := range []struct {
		kind kind
		size int
		into any
	}{
		{configMapKind(), 1 << 10, &corev1.ConfigMap{}},
		{podKind(), 2 << 10, &corev1.Pod{}},
	} {
		body := test.kind.body("some-namespace", "name-000001", 1234567890123456789)
		strict, err := kjson.UnmarshalStrict(body, test.into)
		if err != nil || len(strict) > 0 {
			t.Errorf("%s: %v %v\n%s", test.kind.resource, err, strict, body)
		}
		if slack := len(body) - test.size; slack < 0 || slack > 64 {
			t.Errorf("%s: a body of %d bytes", test.kind.resource, len(body))
		}
		if got, err := revision(body); err != nil || got != 1234567890123456789 {
			t.Errorf("%s: revision %d, %v", test.kind.resource, got, err)
		}
	}
}
