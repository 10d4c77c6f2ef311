// Package always owns the admission plugins AlwaysAdmit and AlwaysDeny of Kubernetes,
// which are for tests. Kubernetes has deprecated them.
package always

import (
	"context"
	"errors"
	"io"

	"k8s.io/apiserver/pkg/admission"
)

// The plugins' names in --enable-admission-plugins and --disable-admission-plugins.
const (
	AdmitName = "AlwaysAdmit"
	DenyName  = "AlwaysDeny"
)

// RegisterAdmit registers the plugin that allows every request.
func RegisterAdmit(plugins *admission.Plugins) {
	plugins.Register(AdmitName, func(io.Reader) (admission.Interface, error) { return admit{}, nil })
}

// RegisterDeny registers the plugin that refuses every request that changes something.
func RegisterDeny(plugins *admission.Plugins) {
	plugins.Register(DenyName, func(io.Reader) (admission.Interface, error) { return deny{}, nil })
}

type admit struct{}

var _ admission.Interface = admit{}

// Handles implements admission.Interface.
func (admit) Handles(admission.Operation) bool { return true }

type deny struct{}

var (
	_ admission.MutationInterface   = deny{}
	_ admission.ValidationInterface = deny{}
)

// Handles implements admission.Interface.
func (deny) Handles(admission.Operation) bool { return true }

// Admit implements admission.MutationInterface: an object that is not valid is refused, too.
func (d deny) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return d.Validate(ctx, a, o)
}

// Validate implements admission.ValidationInterface.
func (deny) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return admission.NewForbidden(a, errors.New("admission control is denying all modifications"))
}
