// Package apps declares the kinds of the apps group.
package apps

import "svc.dev/svc/apis/resource"

// Kinds are the kinds of the apps group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		deployments,
		statefulSets,
		daemonSets,
		replicaSets,
		controllerRevisions,
	}
}
