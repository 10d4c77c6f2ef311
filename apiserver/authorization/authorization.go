// Package authorization decides who may do what.
//
// The decision is a union of authorizers: members of system:masters may do
// everything; what else is allowed, the modes of the flag --authorization-mode
// say, in their order. Without a mode the policy of [Basic] holds, and what is
// granted to the components of the cluster.
package authorization

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
)

// Authorizer decides on requests and lists what a user may do.
type Authorizer interface {
	authorizer.Authorizer
	authorizer.RuleResolver
}

// New makes the authorizer of the flag --authorization-mode, and of the grants
// to components, which hold without a mode and with RBAC. In the mode RBAC
// there are also the roles, which have to Follow informers; else they are nil.
// The error names the flag and the mode that is refused.
func New(modes []string, components Grants) (Authorizer, *Roles, error) {
	var roles *Roles
	members := []member{{"system:masters", masters()}}
	if len(modes) == 0 {
		members = append(members, member{"Basic", Basic()}, member{"components", components})
	}
	for i, mode := range modes {
		construct, ok := available(mode)
		if !ok {
			return nil, nil, fmt.Errorf("--authorization-mode: mode %q is not available: choose from %s, or leave the flag out", mode, strings.Join(Modes(), ", "))
		}
		if slices.Contains(modes[:i], mode) {
			return nil, nil, fmt.Errorf("--authorization-mode: mode %q is named twice", mode)
		}
		m := member{mode, construct(components)}
		if r, ok := m.authorizer.(*Roles); ok {
			roles = r
		}
		members = append(members, m)
	}
	all, err := unite(members)
	return all, roles, err
}

// Modes are the values of the flag --authorization-mode.
func Modes() []string {
	var names []string
	for _, m := range modes() {
		names = append(names, m.name)
	}
	return names
}

type mode struct {
	name      string
	construct func(components Grants) Authorizer
}

// RBAC is the mode in which roles and bindings say who may do what.
const RBAC = "RBAC"

// AlwaysAllow is the mode that lets everybody who is somebody do everything.
const AlwaysAllow = "AlwaysAllow"

// modes lists the modes that exist.
func modes() []mode {
	return []mode{
		{RBAC, func(components Grants) Authorizer { return &Roles{components: components} }},
		{AlwaysAllow, func(Grants) Authorizer { return authorizerfactory.NewAlwaysAllowAuthorizer() }},
		{"AlwaysDeny", func(Grants) Authorizer { return authorizerfactory.NewAlwaysDenyAuthorizer() }},
	}
}

func available(name string) (func(Grants) Authorizer, bool) {
	for _, m := range modes() {
		if m.name == name {
			return m.construct, true
		}
	}
	return nil, false
}

// masters allows everything to the group that administrates the cluster.
func masters() Authorizer {
	return Grants{{Group: user.SystemPrivilegedGroup, Rules: everything()}}
}

// member is one authorizer of a union; its name is unique in it and stands
// before the reason of a refusal.
type member struct {
	name       string
	authorizer Authorizer
}

// united is a union of authorizers and of their rules.
type united struct {
	authorizer.Authorizer
	authorizer.RuleResolver
}

func unite(members []member) (Authorizer, error) {
	var authorizers []union.NamedAuthorizer
	var resolvers []authorizer.RuleResolver
	for _, m := range members {
		authorizers = append(authorizers, union.NamedAuthorizer{AuthorizerName: m.name, Authorizer: m.authorizer})
		resolvers = append(resolvers, m.authorizer)
	}
	decide, err := union.New(authorizers...)
	if err != nil {
		return nil, fmt.Errorf("unite authorizers: %w", err)
	}
	return united{Authorizer: decide, RuleResolver: union.NewRuleResolvers(resolvers...)}, nil
}
