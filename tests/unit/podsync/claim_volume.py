"""Plays volume's side of resource claims, with its real core, for tests of podsync's core."""

from bus.messages.podsync import PodState
from services.podsync.core.pod.events import ClaimsChanged
from services.volume.core.resource_claims.claims_of_node import ClaimsOfNode
from services.volume.core.resource_claims.driver_checks import Device
from services.volume.core.resource_claims.pod_claims import (
    AllocatedClaim,
    ClaimError,
    PodIdentity,
    RequestedClaim,
    requested_claims,
)
from tests.unit.podsync.play import Play

DRIVER = "gpu.example.com"
AWAY = f"DRA driver {DRIVER} is not registered"


class ClaimVolume:
    """Follows what `play` publishes. `away`: the driver does not answer."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.claims = ClaimsOfNode()
        self.away = False

    def restart(self) -> None:
        """Start again from the record, without what podsync has published."""
        kept, self.claims = self.claims.claims, ClaimsOfNode()
        self.claims.restored(kept)

    def act(self) -> None:
        """Do all that is due now, and publish."""
        self.follow()
        now = self.play.wall
        for uid in self.claims.pods_due(now):
            self._prepare(uid, now)
        for key in self.claims.claims_due(now):
            if self.away:
                self.claims.unprepare_failed(key, AWAY, now, now)
            else:
                self.claims.unprepared(key, DRIVER)
        self.publish()

    def follow(self) -> None:
        """Take in what podsync has published."""
        self.claims.set_freshness(complete=True, stale=False)
        for uid in self.claims.pods() - self.play.published.keys():
            self.claims.withdraw_pod(uid)
        for uid, item in [(uid, published.volumes) for uid, published in self.play.published.items()]:
            identity = PodIdentity(uid=uid, name=item.name, namespace=item.namespace)
            if item.state in (PodState.SYNC, PodState.TERMINATING):
                requested = requested_claims(identity, item.pod)
                self.claims.set_pod(identity, requested, starts=item.state is PodState.SYNC)
            else:
                self.claims.end_pod(uid)

    def publish(self) -> None:
        """Publish the items that have changed."""
        self.claims.release()
        for uid in sorted(self.claims.pods() | self.play.claims.keys()):
            shown = self.claims.shown(uid, self.play.wall)
            if shown != self.play.claims.get(uid):
                self.play.claims.pop(uid, None)
                if shown is not None:
                    self.play.claims[uid] = shown
                self.play.happen(ClaimsChanged(uid=uid, claims=shown))

    def _prepare(self, uid: str, now: float) -> None:
        errors = {}
        for requested in self.claims.unread(uid):
            try:
                self.claims.use(uid, requested, _allocated(requested))
            except ClaimError as error:
                errors[requested.name] = str(error)
        for driver, claims in self.claims.to_call(uid).items():
            for claim in claims:
                self.claims.called(claim.key, driver)
                if self.away:
                    errors |= dict.fromkeys(claim.names(uid), AWAY)
                else:
                    device = Device(pool="node", device=claim.name, cdi_devices=(f"example.com/gpu={claim.name}",))
                    self.claims.prepared(claim.key, driver, (device,))
        self.claims.recorded(self.claims.claims)
        if errors:
            self.claims.pod_failed(uid, errors, now, now)
        else:
            self.claims.pod_succeeded(uid)


def _allocated(requested: RequestedClaim) -> AllocatedClaim:
    if requested.error:
        raise ClaimError(requested.error)
    return AllocatedClaim(uid=f"uid-of-{requested.claim}", name=requested.claim, namespace="default", drivers=(DRIVER,))
