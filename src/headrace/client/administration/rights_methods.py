"""Admin methods for users, their delegation tokens, ACLs and quotas."""

from collections.abc import Iterable, Mapping, Sequence

from headrace.client import acls, delegation_tokens, quotas, users
from headrace.client.acls import AccessRule
from headrace.client.administration.connected import Connected
from headrace.client.delegation_tokens import NOT_SAID, DelegationToken
from headrace.client.quotas import QuotaEntity
from headrace.sasl.secret import Secret


class RightsMethods(Connected):
    """Users, their rights, and their quotas."""

    async def create_acls(self, rules: Sequence[AccessRule]) -> None:
        """Add ACLs; those that are there already stay."""
        await acls.create_acls(self.cluster, rules)

    async def describe_acls(self, *, principal: str | None = None) -> list[AccessRule]:
        """Return all ACLs, or those of one principal."""
        return await acls.describe_acls(self.cluster, principal=principal)

    async def delete_acls(self, rules: Sequence[AccessRule]) -> int:
        """Remove exactly these ACLs; return how many there were of them."""
        return await acls.delete_acls(self.cluster, rules)

    async def set_password(
        self, user: str, password: str, mechanisms: Sequence[str] = users.MECHANISMS
    ) -> None:
        """Add a user of SCRAM, or give one another password. The password is not sent."""
        await users.set_password(self.cluster, user, password, mechanisms)

    async def remove_user(self, user: str) -> None:
        """Remove a user of SCRAM with all its mechanisms."""
        await users.remove_user(self.cluster, user)

    async def list_users(self) -> dict[str, dict[str, int]]:
        """Return the users of SCRAM: the iterations of each mechanism."""
        return await users.list_users(self.cluster)

    async def describe_quotas(
        self,
        names: Mapping[str, str | None] | None = None,
        *,
        types: Iterable[str] = (),
        is_strict: bool = False,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of entities that have these names and are of these types, or all.

        The name None is the default of a type; `is_strict` leaves out entities that have other
        types, too.
        """
        return await quotas.describe_quotas(self.cluster, names, types=types, is_strict=is_strict)

    async def alter_quotas(
        self,
        entity: QuotaEntity,
        *,
        set: Mapping[str, float] | None = None,  # noqa: A002  as `alter_configs` has it
        remove: Iterable[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and remove limits of a user, a client id, a user's client id or an address."""
        await quotas.alter_quotas(
            self.cluster, entity, set=set, remove=remove, validate_only=validate_only
        )

    async def create_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int = NOT_SAID,
    ) -> DelegationToken:
        """Return a new delegation token, one's own unless an owner is named."""
        return await delegation_tokens.create_token(
            self.cluster, owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )

    async def list_tokens(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """Return the delegation tokens that one may see, or those of some users."""
        return await delegation_tokens.list_tokens(self.cluster, owners)

    async def renew_token(self, password: Secret | str, period_ms: int = NOT_SAID) -> int:
        """Renew a delegation token; return when it ends now."""
        return await delegation_tokens.renew_token(self.cluster, password, period_ms)

    async def expire_token(self, password: Secret | str, period_ms: int = NOT_SAID) -> int:
        """End a delegation token, at once unless a period is said; return when it ends."""
        return await delegation_tokens.expire_token(self.cluster, password, period_ms)
