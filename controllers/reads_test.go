package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/controllers/controller"
)

func TestSelectors(t *testing.T) {
	reader := func(selector string) controller.Controller {
		c := controller.Controller{Reads: []client.Object{&corev1.Secret{}, &corev1.Pod{}}}
		if selector != "" {
			c.Selectors = []controller.Selector{{Object: &corev1.Secret{}, Fields: fields.ParseSelectorOrDie(selector)}}
		}
		return c
	}
	for _, test := range []struct {
		rule   string
		picked []controller.Controller
		want   string
	}{
		{"a kind with one reader is limited to what it needs", []controller.Controller{reader("type=a")}, "type=a"},
		{"so is a kind whose readers need the same", []controller.Controller{reader("type=a"), reader("type=a")}, "type=a"},
		{"readers that need different objects get all", []controller.Controller{reader("type=a"), reader("type=b")}, ""},
		{"as does one that needs all", []controller.Controller{reader(""), reader("type=a")}, ""},
	} {
		got := ""
		for name, selector := range selectors(test.picked) {
			if name != "*v1.Secret" {
				t.Errorf("%s: %s is limited", test.rule, name)
			}
			got += selector.String()
		}
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.rule, got, test.want)
		}
	}
}
