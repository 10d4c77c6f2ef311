// Package credentials owns the credentials for image pulls.
//
// A [Keyring] has those of docker configurations, by registry, and looks them up
// by kubelet's rules: the pull secrets of a pod are one ([FromSecrets]), the files
// of the node another ([Files]), and the answers of credential provider plugins a
// third ([Plugins]).
package credentials
