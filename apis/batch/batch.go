// Package batch declares the kinds of the batch group.
package batch

import "svc.dev/svc/apis/resource"

// Kinds are the kinds of the batch group.
func Kinds() []resource.Declaration {
	return []resource.Declaration{
		jobs,
		cronJobs,
	}
}
